# cmake -DFILE=program -DRPATH=path -P SetRpath.cmake: where the program looks for its libraries.
file(RPATH_SET FILE "${FILE}" NEW_RPATH "${RPATH}")
