# Writes web files as C++: cmake -D OUTPUT=FILE.cc -D WEB=FOLDER -D UPLOT=FOLDER -P embed.cmake
# A raw string ends at )web", which no page has a use for; the compiler would refuse what came after one.
function(literal result file)
  file(READ ${file} text)
  set(${result} "R\"web(${text})web\"" PARENT_SCOPE)
endfunction()

literal(uplot_script ${UPLOT}/uPlot.iife.min.js)
literal(uplot_style ${UPLOT}/uPlot.min.css)
literal(uplot_licence ${UPLOT}/LICENSE)
literal(body ${WEB}/body.html)
literal(style ${WEB}/style.css)
set(scripts "")
foreach(name format run charts gantt tables page)
  literal(script ${WEB}/${name}.js)
  string(APPEND scripts "    ${script},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"isochron/view/web_files.h\"

namespace isochron::view {

const std::string_view kUplotScript = ${uplot_script};
const std::string_view kUplotStyle = ${uplot_style};
const std::string_view kUplotLicence = ${uplot_licence};
const std::string_view kPageBody = ${body};
const std::string_view kPageStyle = ${style};
const std::array<std::string_view, 6> kPageScripts{
${scripts}};

}  // namespace isochron::view
")
